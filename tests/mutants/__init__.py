"""Mutation testing (`make mutants`): each small change of codec, tape or repair must turn a fast test red."""
