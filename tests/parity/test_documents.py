"""The numbers that the project's source documents print, computed through regard.

Close means half a unit in the last digit printed.
"""

import math

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers
from torch import Tensor, nn

import regard
from regard.blocks import Embeddings, MultiHeadAttention
from regard.core import (
    AttentionInputs,
    Predicate,
    Taps,
    Window,
    attention_scores,
    attention_weights,
    fused_attention,
    reference_attention,
)
from regard.core.errors import ModelNotFoundError
from regard.positions import SinusoidalPositions, sinusoidal_encoding
from regard.text import Tokenizer
from regard.views import plot_positions
from tolerances import FP32_OF_LARGEST, FP64, WEIGHTS, assert_close_to_largest

SENTENCE = "Life is short, eat dessert first"
DICTIONARY = {"Life": 0, "dessert": 1, "eat": 2, "first": 3, "is": 4, "short": 5}
EMBEDDED = [
    [
        *[0.3374, -0.1778, -0.3035, -0.5880, 0.3486, 0.6603, -0.2196, -0.3792],
        *[0.7671, -1.1925, 0.6984, -1.4097, 0.1794, 1.8951, 0.4954, 0.2692],
    ],
    [
        *[0.5146, 0.9938, -0.2587, -1.0826, -0.0444, 1.6236, -2.3229, 1.0878],
        *[0.6716, 0.6933, -0.9487, -0.0765, -0.1526, 0.1167, 0.4403, -1.4465],
    ],
    [
        *[0.2553, -0.5496, 1.0042, 0.8272, -0.3948, 0.4892, -0.2168, -1.7472],
        *[-1.6025, -1.0764, 0.9031, -0.7218, -0.5951, -0.7112, 0.6230, -1.3729],
    ],
    [
        *[-1.3250, 0.1784, -2.1338, 1.0524, -0.3885, -0.9343, -0.4991, -1.0867],
        *[0.8805, 1.5542, 0.6266, -0.1755, 0.0983, -0.0935, 0.2662, -0.5850],
    ],
    [
        *[-0.0770, -1.0205, -0.1690, 0.9178, 1.5810, 1.3010, 1.2753, -0.2010],
        *[0.4965, -1.5723, 0.9666, -1.1481, -1.1589, 0.3255, -0.6315, -2.8400],
    ],
    [
        *[0.8768, 1.6221, -1.4779, 1.1331, -1.2203, 1.3139, 1.0533, 0.1388],
        *[2.2473, -0.8036, -0.2808, 0.7697, -0.6596, -0.7979, 0.1838, 0.2293],
    ],
]
OMEGA_2 = [8.5808, -7.6597, 3.2558, 1.0395, 11.1466, -0.4800]
WEIGHTS_2 = [0.2912, 0.0106, 0.0982, 0.0625, 0.4917, 0.0458]
CONTEXT_2 = [
    *[-1.5993, 0.0156, 1.2670, 0.0032, -0.6460, -1.1407, -0.4908, -1.4632],
    *[0.4747, 1.1926, 0.4506, -0.7110, 0.0602, 0.7125, -0.1628, -2.0184],
    *[0.3838, -2.1188, -0.8136, -1.5694, 0.7934, -0.2911, -1.3640, -0.2366],
    *[-0.9564, -0.5265, 0.0624, 1.7084],
]
POSITIONS = [
    [0.0, 1.0, 0.0],
    [0.84, 0.54, 0.0],
    [0.91, -0.42, 0.0],
    [0.14, -0.99, 0.01],
    [-0.76, -0.65, 0.01],
]
BEFORE = [[0.12, 0.94, 0.9], [0.14, 0.65, 0.22], [0.29, 0.58, 0.31], [0.69, 0.37, 0.62], [0.25, 0.61, 0.65]]
AFTER = [[0.12, 1.94, 0.9], [0.98, 1.19, 0.22], [1.2, 0.16, 0.31], [0.83, -0.62, 0.63], [-0.51, -0.04, 0.66]]

FLIES = "time flies like an arrow"
FLIES_IDS = [2051, 10029, 2066, 2019, 8612]
FISHING = "Write a poem about a man fishing on a river bank."
MONEY = "Write a poem about a man withdrawing money from a bank."

D, D_K, D_V = 16, 24, 28


def assert_as_printed(actual: Tensor | np.ndarray, printed: object, decimals: int) -> None:
    """Fail unless the values round to the printed ones (give or take the rounding of a half)."""
    ours, wanted = np.asarray(actual, dtype=np.float64), np.asarray(printed, dtype=np.float64)
    assert ours.shape == wanted.shape
    assert np.abs(ours - wanted).max() <= 0.5 * 10.0**-decimals + 1e-9


def test_a_number_that_is_not_printed_is_refused() -> None:
    assert_as_printed(np.array([11.14656]), [11.1466], 4)
    with pytest.raises(AssertionError, match="abs"):
        assert_as_printed(np.array([11.14666]), [11.1466], 4)


class TestLifeIsShort:
    """ "Understanding and Coding the Self-Attention Mechanism": seed 123, d = 16, d_k = 24, d_v = 28."""

    @pytest.fixture
    def x(self) -> Tensor:
        torch.manual_seed(123)
        table = nn.Embedding(6, D)
        embeddings = Embeddings(vocab_size=6, d_model=D)
        embeddings.tokens = table
        rows: list[Tensor] = []
        taps = Taps({"tokens": rows.append})
        embeddings(torch.tensor([[0, 4, 5, 2, 1, 3]]), positions=torch.arange(6)[None], taps=taps)
        return rows[0][0].detach()

    @pytest.fixture
    def projections(self) -> tuple[Tensor, Tensor, Tensor]:
        torch.manual_seed(123)
        return torch.rand(D_K, D), torch.rand(D_K, D), torch.rand(D_V, D)

    @pytest.fixture
    def inputs(self, x: Tensor, projections: tuple[Tensor, Tensor, Tensor]) -> AttentionInputs:
        q, k, v = ((x @ weight.T)[None, None] for weight in projections)
        return AttentionInputs(q=q, k=k, v=v)

    def test_the_dictionary_gives_the_ids(self) -> None:
        words = SENTENCE.replace(",", "").split()
        assert {word: number for number, word in enumerate(sorted(words))} == DICTIONARY
        backend = tokenizers.Tokenizer(models.WordLevel(DICTIONARY, unk_token="Life"))
        backend.normalizer = normalizers.Replace(",", "")
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        encoding = Tokenizer.from_str(backend.to_str()).encode(SENTENCE)
        assert list(encoding.token_ids) == [0, 4, 5, 2, 1, 3]
        assert [word.text for word in encoding.words if word.text != ","] == words

    def test_the_embedded_sentence(self, x: Tensor) -> None:
        assert x.shape == (6, 16)
        assert_as_printed(x, EMBEDDED, 4)

    def test_sizes_of_query_key_and_value(self, inputs: AttentionInputs) -> None:
        assert inputs.q[0, 0, 1].shape == (24,)
        assert inputs.k[0, 0].shape == (6, 24)
        assert inputs.v[0, 0].shape == (6, 28)

    def test_unnormalised_weights(self, inputs: AttentionInputs) -> None:
        scores = reference_attention(inputs).scores[0, 0]
        assert_as_printed(scores[1, 4], 11.1466, 4)
        assert_as_printed(scores[1], OMEGA_2, 4)
        one_row = attention_scores(inputs, queries=range(1, 2))[0, 0, 0]
        assert_as_printed(one_row * math.sqrt(D_K), OMEGA_2, 4)

    def test_weights(self, inputs: AttentionInputs) -> None:
        assert_as_printed(reference_attention(inputs).weights[0, 0, 1], WEIGHTS_2, 4)
        assert_as_printed(attention_weights(inputs, queries=torch.tensor([1]))[0, 0, 0], WEIGHTS_2, 4)

    def test_the_context_vector(self, inputs: AttentionInputs) -> None:
        assert_as_printed(reference_attention(inputs).context[0, 0, 1], CONTEXT_2, 4)
        assert_as_printed(fused_attention(inputs)[0, 0, 1], CONTEXT_2, 4)

    def test_the_context_vector_through_the_block(
        self, x: Tensor, projections: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        block = MultiHeadAttention(D, 1, head_dim=D_K, v_dim=D_V, use_bias=False)
        _set(block, *projections)
        contexts: list[Tensor] = []
        block(x[None], taps=Taps({"context": contexts.append}))
        assert_as_printed(contexts[0][0, 0, 1].detach(), CONTEXT_2, 4)

    def test_three_heads(self, x: Tensor, projections: tuple[Tensor, Tensor, Tensor]) -> None:
        # The generator goes on where `projections` left it, as in the document.
        queries, keys, values = torch.rand(3, D_K, D), torch.rand(3, D_K, D), torch.rand(3, D_V, D)
        block = MultiHeadAttention(D, 3, head_dim=D_K, v_dim=D_V, use_bias=False)
        _set(block, queries.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1))
        seen: dict[str, Tensor] = {}
        names = ("q", "k", "v", "context")
        taps = Taps({name: lambda value, name=name: seen.update({name: value.detach()[0]}) for name in names})
        block(x[None], taps=taps)
        assert seen["q"][:, 1].shape == (3, 24)
        assert seen["k"].shape == (3, 6, 24)
        assert seen["v"].shape == (3, 6, 28)
        assert seen["context"].shape == (3, 6, 28)
        stacked = x.T.repeat(3, 1, 1)
        assert_close_to_largest(seen["q"][:, 1], queries @ x[1], FP32_OF_LARGEST)
        assert_close_to_largest(seen["k"], torch.bmm(keys, stacked).permute(0, 2, 1), FP32_OF_LARGEST)
        assert_close_to_largest(seen["v"], torch.bmm(values, stacked).permute(0, 2, 1), FP32_OF_LARGEST)
        for head in range(3):
            weights = torch.softmax((queries[head] @ x[1]) @ (keys[head] @ x.T) / D_K**0.5, dim=0)
            wanted = weights @ (values[head] @ x.T).T
            assert_close_to_largest(seen["context"][head, 1], wanted, FP32_OF_LARGEST)

    def test_cross_attention(self, x: Tensor, projections: tuple[Tensor, Tensor, Tensor]) -> None:
        other = torch.rand(8, D)
        block = MultiHeadAttention(D, 1, head_dim=D_K, v_dim=D_V, use_bias=False)
        _set(block, *projections)
        seen: dict[str, Tensor] = {}
        names = ("q", "k", "v", "weights", "context")
        taps = Taps({name: lambda value, name=name: seen.update({name: value[0, 0]}) for name in names})
        with torch.no_grad():
            block(x[None], source=other[None], taps=taps)
        assert seen["q"].shape == (6, 24)
        assert seen["k"].shape == (8, 24)
        assert seen["v"].shape == (8, 28)
        assert seen["weights"].shape == (6, 8)
        assert seen["context"].shape == (6, 28)
        assert_close_to_largest(seen["k"], other @ projections[1].T, FP32_OF_LARGEST)

    def test_cross_attention_to_oneself_is_self_attention(
        self, x: Tensor, projections: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        block = MultiHeadAttention(D, 1, head_dim=D_K, v_dim=D_V, use_bias=False)
        _set(block, *projections)
        assert torch.equal(block(x[None], source=x[None]), block(x[None]))


def _set(block: MultiHeadAttention, q: Tensor, k: Tensor, v: Tensor) -> None:
    with torch.no_grad():
        for layer, weight in ((block.q, q), (block.k, k), (block.v, v)):
            assert layer.weight.shape == weight.shape
            layer.weight.copy_(weight)


class TestPositionalEncoding:
    """ "Self-Attention Explained with Code", section 2."""

    def test_the_table(self) -> None:
        assert_as_printed(sinusoidal_encoding(5, 3), POSITIONS, 2)

    def test_embeddings_with_positional_encoding(self) -> None:
        positions = SinusoidalPositions(5, 3)(torch.arange(5))
        assert_as_printed(torch.tensor(BEFORE) + positions, AFTER, 2)

    def test_the_matrix_of_the_picture(self) -> None:
        table = sinusoidal_encoding(100, 400).numpy()
        assert table.shape == (100, 400)
        assert table.min() >= -1
        assert table.max() <= 1
        for pos, i in ((0, 0), (1, 0), (99, 1), (37, 200), (37, 201), (99, 398), (99, 399)):
            angle = pos / 10_000 ** ((i - i % 2) / 400)
            wanted = math.cos(angle) if i % 2 else math.sin(angle)
            assert table[pos, i] == pytest.approx(wanted, abs=FP64)
        axes = plot_positions(table).axes[0]
        (image,) = axes.images
        assert np.array_equal(np.asarray(image.get_array()), table)
        assert image.get_cmap().name == "coolwarm"


class TestTimeFlies:
    """The book chapter on scaled dot-product attention and multi-head attention."""

    def test_ids(self, model: regard.Model) -> None:
        tokenizer = model.tokenizer
        assert list(tokenizer.encode(FLIES, add_special_tokens=False).token_ids) == FLIES_IDS
        assert list(tokenizer.encode(FLIES).token_ids) == [101, *FLIES_IDS, 102]

    def test_simplified_attention(self) -> None:
        # query = key = value = the embeddings themselves
        table = nn.Embedding(30522, 768).weight.detach()
        x = table[torch.tensor([FLIES_IDS])]
        assert x.shape == (1, 5, 768)
        inputs = AttentionInputs(q=x[:, None], k=x[:, None], v=x[:, None])
        worked = reference_attention(inputs)
        assert worked.scaled_scores[:, 0].shape == (1, 5, 5)
        ones = torch.ones(1, 5)
        assert_close_to_largest(worked.weights[:, 0].sum(dim=-1), ones, WEIGHTS)
        assert worked.context[:, 0].shape == (1, 5, 768)
        scores = torch.bmm(x, x.transpose(1, 2)) / math.sqrt(768)
        wanted = torch.bmm(torch.softmax(scores, dim=-1), x)
        assert_close_to_largest(worked.scaled_scores[:, 0], scores, FP32_OF_LARGEST)
        assert_close_to_largest(worked.context[:, 0], wanted, FP32_OF_LARGEST)
        assert_close_to_largest(fused_attention(inputs)[:, 0], wanted, FP32_OF_LARGEST)

    def test_equal_queries_and_keys_favour_identical_words(self) -> None:
        table = nn.Embedding(30522, 768).weight.detach()
        x = table[torch.tensor([[*FLIES_IDS, 10029, 2066]])][:, None]
        weights = attention_weights(AttentionInputs(q=x, k=x, v=x))[0, 0]
        for word, again in ((1, 5), (2, 6)):
            assert weights[word, word].item() == pytest.approx(0.5, abs=1e-3)
            assert weights[word, again].item() == pytest.approx(0.5, abs=1e-3)
        assert weights[0, 0].item() == pytest.approx(1.0, abs=1e-3)

    def test_multi_head_attention_of_the_size_of_bert_base(self) -> None:
        block = MultiHeadAttention(768, 12)
        x = torch.randn(1, 5, 768)
        seen: dict[str, Tensor] = {}
        names = ("q", "scores", "weights")
        taps = Taps({name: lambda value, name=name: seen.update({name: value}) for name in names})
        with torch.no_grad():
            output = block(x, taps=taps)
            assert block(x).shape == (1, 5, 768)
        assert output.shape == (1, 5, 768)
        assert seen["q"].shape == (1, 12, 5, 64)
        for head in range(12):
            assert seen["scores"][:, head].shape == (1, 5, 5)
        assert_close_to_largest(seen["weights"].sum(dim=-1), torch.ones(1, 12, 5), WEIGHTS)


class TestWord2vec:
    """ "Transformer vs Word2vec": one head, identity queries and keys, and a mask word alike to every word.

    With e_mask . e_w = C for every word w the scores of the mask word are all the same, so that its output is
    the mean of the value vectors it may see: CBOW's mean of the context words.
    """

    NUM_WORDS, D_MODEL, V_DIM, AT = 23, 7, 5, 11

    @pytest.fixture
    def embedded(self) -> Tensor:
        """(1, words, d_model): every first entry is 1.5, and the mask word is 2 in the first entry alone."""
        embedded = torch.randn(1, self.NUM_WORDS, self.D_MODEL, dtype=torch.float64)
        embedded[..., 0] = 1.5
        embedded[0, self.AT] = 0.0
        embedded[0, self.AT, 0] = 2.0
        return embedded

    @pytest.fixture
    def block(self) -> MultiHeadAttention:
        block = MultiHeadAttention(
            self.D_MODEL, 1, head_dim=self.D_MODEL, v_dim=self.V_DIM, use_bias=False, scale=1.0
        ).double()
        with torch.no_grad():
            block.q.weight.copy_(torch.eye(self.D_MODEL))
            block.k.weight.copy_(torch.eye(self.D_MODEL))
        return block

    def context(self, block: MultiHeadAttention, embedded: Tensor, **kwargs: object) -> list[float]:
        contexts: list[Tensor] = []
        with torch.no_grad():
            block(embedded, taps=Taps({"context": contexts.append}), **kwargs)
        row: list[float] = contexts[0][0, 0, self.AT].tolist()
        return row

    def values(self, block: MultiHeadAttention, embedded: Tensor) -> list[list[float]]:
        """W_V e_w by loops: CBOW's table of input embeddings, row by row."""
        weight = block.v.weight.tolist()
        return [
            [sum(w * e for w, e in zip(row, word, strict=True)) for row in weight]
            for word in embedded[0].tolist()
        ]

    def test_cbow(self, block: MultiHeadAttention, embedded: Tensor) -> None:
        neighbours = [j for j in range(self.NUM_WORDS) if 0 < abs(j - self.AT) <= 4]
        assert len(neighbours) == 8
        values = self.values(block, embedded)
        wanted = [math.fsum(values[j][i] for j in neighbours) / 8 for i in range(self.V_DIM)]
        mask = Window(left=4, right=4) & Predicate(lambda query, key: query != key)
        assert self.context(block, embedded, mask=mask) == pytest.approx(wanted, abs=FP64)
        everything = self.context(block, embedded, mask=Predicate(lambda query, key: query != key))
        assert everything != pytest.approx(wanted, abs=1e-3)

    def test_cbow_at_the_end_of_the_text(self, block: MultiHeadAttention, embedded: Tensor) -> None:
        # the window then holds the four words to the left, and the mask word itself where nothing forbids it
        embedded = embedded[:, : self.AT + 1]
        values = self.values(block, embedded)
        mine = embedded[0, self.AT, 0].item() ** 2  # e_mask . e_mask = 4; with the others it is C = 3
        mass = [math.exp(3.0)] * 4 + [math.exp(mine)]
        wanted = [
            math.fsum(m * values[j][i] for m, j in zip(mass, range(self.AT - 4, self.AT + 1), strict=True))
            / math.fsum(mass)
            for i in range(self.V_DIM)
        ]
        assert self.context(block, embedded, mask=Window(left=4, right=4)) == pytest.approx(wanted, abs=FP64)

    def test_positions_that_add_one_near_by(self, block: MultiHeadAttention, embedded: Tensor) -> None:
        # The document's score C + delta(|i - j| <= 4), with the delta as an additive bias: each of the n near
        # words has the weight e / (n e + m), each of the m others 1 / (n e + m).
        position = torch.arange(self.NUM_WORDS)
        near = ((position[:, None] - position[None, :]).abs() <= 4).double()[None, None]
        embedded[0, self.AT, 0] = 1.5  # C = e_mask . e_mask = e_mask . e_w = 2.25
        values = self.values(block, embedded)
        total = 9 * math.e + (self.NUM_WORDS - 9)
        wanted = [
            math.fsum(
                (math.e if abs(j - self.AT) <= 4 else 1.0) / total * values[j][i]
                for j in range(self.NUM_WORDS)
            )
            for i in range(self.V_DIM)
        ]
        assert self.context(block, embedded, bias=near) == pytest.approx(wanted, abs=FP64)


class TestBank:
    """ "bank" by the river and "bank" with the money."""

    def test_tokens(self, model: regard.Model) -> None:
        encoding = model.tokenizer.encode(FISHING)
        assert [token.text for token in encoding.tokens] == [
            "[CLS]",
            "write",
            "a",
            "poem",
            "about",
            "a",
            "man",
            "fishing",
            "on",
            "a",
            "river",
            "bank",
            ".",
            "[SEP]",
        ]
        written = ["write", "a", "poem", "about", "a", "man", "fishing", "on", "a", "river", "bank"]
        assert [word.text.lower() for word in encoding.words][: len(written)] == written
        assert encoding.find("bank") == (11,)

    def test_similarity(self, model: regard.Model) -> None:
        similarity = model.compare([FISHING, MONEY], "bank").similarity[:, 0, 1]
        assert similarity.shape == (7,)
        assert_as_printed(similarity[0], 1.0, 6)
        assert_as_printed(similarity[-1], 0.847, 3)


# What the article prints of distilbert-base-uncased: to two decimals and to four.
LEARNED_BANK = [-0.03, -0.06, -0.09, -0.07, -0.03]
BANK_BY_THE_RIVER = [0.15, -0.16, -0.17, -0.08, 0.44]
BANK_WITH_MONEY = [0.27, -0.23, -0.23, -0.21, 0.79]
PRINTED_ROWS = [0, 1, 2, 11, 12, 13]
PRINTED_COLUMNS = [0, 1, 2, -3, -2, -1]
LEARNED_ROWS = [
    [0.0390, -0.0123, -0.0208, 0.0607, 0.0230, 0.0238],
    [-0.0300, -0.0070, -0.0247, 0.0203, -0.0566, -0.0264],
    [0.0062, 0.0100, 0.0071, -0.0043, -0.0132, 0.0166],
    [-0.0261, -0.0571, -0.0934, -0.0351, -0.0396, -0.0389],
    [-0.0244, -0.0138, -0.0078, 0.0069, 0.0057, -0.0016],
    [-0.0199, -0.0095, -0.0099, -0.0235, 0.0071, -0.0071],
]
CONTEXTUAL_ROWS = [
    [-0.0957, -0.2030, -0.5024, 0.0490, 0.3114, 0.1348],
    [0.4535, 0.5324, -0.2670, 0.0583, 0.2880, -0.4577],
    [-0.1893, 0.1717, -0.4159, -0.2230, -0.2225, 0.0207],
    [0.1536, -0.1616, -0.1735, -0.3608, -0.3879, -0.1812],
    [-0.0182, -0.4264, -0.6702, 0.3213, 0.5881, -0.5163],
    [0.7911, 0.2633, -0.4892, -0.2303, -0.6364, -0.3311],
]


@pytest.mark.hub
def test_distilbert_by_the_river_and_with_money() -> None:
    try:
        model = regard.load("distilbert-base-uncased")
    except ModelNotFoundError as error:
        pytest.skip(str(error))
    river, money = model.trace([FISHING, MONEY])
    assert_as_printed(model.trace("bank").embedding("bank", layer=0)[:5], LEARNED_BANK, 2)
    assert_as_printed(river.embedding("bank", layer=0)[:5], LEARNED_BANK, 2)
    assert_as_printed(river.embedding("bank")[:5], BANK_BY_THE_RIVER, 2)
    assert_as_printed(money.embedding("bank")[:5], BANK_WITH_MONEY, 2)
    assert_as_printed(river.embeddings(0)[PRINTED_ROWS][:, PRINTED_COLUMNS], LEARNED_ROWS, 4)
    assert_as_printed(river.embeddings()[PRINTED_ROWS][:, PRINTED_COLUMNS], CONTEXTUAL_ROWS, 4)
