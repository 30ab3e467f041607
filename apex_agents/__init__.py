"""Ape-X: distributed prioritized experience replay for DQN and DPG agents."""
