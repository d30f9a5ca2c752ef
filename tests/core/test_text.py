import pytest

from lntrust.core import text


@pytest.mark.parametrize(
    ("value", "sent", "decimal", "plain", "tick"),
    [
        (0.000776, "0 B", "0 B", "0.00078", "0.000776"),
        (12.34, "12 B", "12 B", "12.3", "12.3"),
        (999.6, "1 kB", "1.0 kB", "1,000", "1k"),
        (10_000, "10 kB", "10.0 kB", "10,000", "10k"),
        (999_900, "1 MB", "999.9 kB", "999,900", "1M"),
        (999_960, "1 MB", "1.0 MB", "999,960", "1M"),
        (1_234_567, "1.23 MB", "1.2 MB", "1,234,567", "1.23M"),
        (2.5e9, "2.5 GB", "2.5 GB", "2,500,000,000", "2,500M"),
        (1.5e15, "1,500 TB", "1500.0 TB", "1,500,000,000,000,000", "1,500,000,000M"),
    ],
)
def test_sizes_and_numbers(value: float, sent: str, decimal: str, plain: str, tick: str) -> None:
    assert (text.bytes_text(value), text.bytes_text(value, decimals=1)) == (sent, decimal)
    assert (text.number_text(value), text.tick_text(value)) == (plain, tick)


def test_scores_and_shares() -> None:
    plain, signed = [0.7754, -0.013, 1.0, 10.5], [0.045, -0.013, 10.0]
    assert list(map(text.score_text, plain)) == [".775", "-.013", "1.000", "10.500"]
    assert [text.score_text(value, sign=True) for value in signed] == ["+.045", "-.013", "+10.000"]
    assert text.score_text(0.05, decimals=2) == ".05"
    assert (text.percent_text(0.254), text.percent_text(0.254, 1)) == ("25 %", "25.4 %")


def test_times_and_counts() -> None:
    times = [text.time_text(s) for s in (0.00125, 3.217, 99.9, 120.4)]
    assert times == ["1.25 ms", "3.22 s", "99.9 s", "120 s"]
    ages = [text.age_text(s) for s in (12, 119, 300, 3 * 3600, 90 * 86400)]
    assert ages == ["12.0 s", "119.0 s", "5 min", "3 h", "90 days"]
    assert (text.count_text(1, "run"), text.count_text(2, "study", "studies")) == ("1 run", "2 studies")


def test_a_close_name_is_offered_and_a_strange_one_is_not() -> None:
    assert text.did_you_mean("digts", iter(["cifar", "digits"])) == "did you mean digits? "
    assert text.did_you_mean("zebra", ["cifar", "digits"]) == ""
