"""Static embeddings from texts: word2vec and FastText."""

from regard.training.words._train import train_words, words_step
