"""Tests of training and of the drafter network."""
