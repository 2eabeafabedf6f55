"""Agents that speak Responses, Messages or chat, in front of scripted upstreams that speak only one of them."""
