"""Fields of config.json that scale rotary embeddings."""

YARN = {"rope_type": "yarn", "factor": 5.0, "original_max_position_embeddings": 19}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0 + 0.1 * i for i in range(11)],
    "long_factor": [2.0 + 0.7 * i for i in range(11)],
    "original_max_position_embeddings": 19,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 7.0,
    "low_freq_factor": 1.5,
    "high_freq_factor": 4.5,
    "original_max_position_embeddings": 53,
}
