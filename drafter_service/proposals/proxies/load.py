"""The parts of path search's causal proxy that come from files."""

from __future__ import annotations

from pathlib import Path

from drafter_service.config import DrafterConfig, ScorerConfig
from drafter_service.proposals.causal_scorer import CausalScorer
from drafter_service.proposals.proxies.kenlm import KenLMScorer
from drafter_service.proposals.proxies.ngram_table import FILE_NAME as NGRAM_FILE
from drafter_service.proposals.proxies.ngram_table import NgramTable
from drafter_service.proposals.proxies.static_ngram import StaticNgram
from foredraft.errors import ConfigError, WeightsError
from foredraft.model_files import verify_files

_LM_PATH = "cps.scorer.lm_path"


def load_proxies(
    config: DrafterConfig, vocab_size: int, max_mask_slots: int
) -> list[tuple[float, CausalScorer]]:
    """Return the configured parts with their weights; raise WeightsError or ConfigError.

    vocab_size and max_mask_slots, in mask slots, are the drafter's.
    """
    scorer = config.cps.scorer
    loaded: list[tuple[float, CausalScorer]] = []
    if scorer.static > 0 and (table := _load_ngram(config.model)):
        loaded.append((scorer.static, table))
    if scorer.kenlm > 0:
        loaded.append((scorer.kenlm, _load_kenlm(scorer)))
    if scorer.lm > 0:
        loaded.append((scorer.lm, _load_lm(scorer, vocab_size, max_mask_slots)))
    return loaded


def _load_ngram(model: Path) -> StaticNgram | None:
    """Return the table in the folder or in proxy/ beside it; None if there is none."""
    for folder in (model, model.resolve().parent / "proxy"):
        if (folder / NGRAM_FILE).is_file():
            verify_files(folder)
            try:
                return StaticNgram(NgramTable.load(folder))
            except ValueError as error:
                raise WeightsError(f"the n-gram table cannot be used: {error}") from error
    return None


def _load_kenlm(config: ScorerConfig) -> KenLMScorer:
    if config.kenlm_path is None:
        raise ConfigError("cps.scorer.kenlm needs kenlm_path", param="cps.scorer.kenlm_path")
    try:
        return KenLMScorer(str(config.kenlm_path))
    except ImportError:
        raise ConfigError("the kenlm package is not installed", param="cps.scorer.kenlm") from None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the KenLM model cannot be used: {error}", param="cps.scorer.kenlm_path"
        ) from None


def _load_lm(config: ScorerConfig, vocab_size: int, max_mask_slots: int) -> CausalScorer:
    if config.lm_path is None or not config.lm_path.is_dir():
        raise ConfigError("cps.scorer.lm needs lm_path, a model's folder", param=_LM_PATH)
    # Imported here: a drafter without a language model has no need of transformers.
    from drafter_service.proposals.proxies.causal_lm import CausalLMScorer, load_causal_lm

    try:
        verify_files(config.lm_path)
        model = load_causal_lm(config.lm_path)
    except (WeightsError, OSError, KeyError, RuntimeError, ValueError) as error:
        raise WeightsError(
            f"the proxy's language model cannot be loaded: {error}", param=_LM_PATH
        ) from None
    text = model.config.get_text_config()
    if text.vocab_size != vocab_size:
        raise ConfigError(
            f"the language model has {text.vocab_size} tokens, the drafter {vocab_size}",
            param=_LM_PATH,
        )
    longest = getattr(text, "max_position_embeddings", None)
    if longest is not None and config.lm_window + max_mask_slots > longest:
        raise ConfigError(
            f"the language model holds {longest} tokens, fewer than lm_window and a block",
            param="cps.scorer.lm_window",
        )
    return CausalLMScorer(model, config.lm_window)
