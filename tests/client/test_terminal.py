"""What a terminal would show of raw output (case 11)."""

import io

import pytest
from tqdm import tqdm

from jupyter_gpusched.terminal import render


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain\n\ttext \n", "plain\n\ttext \n"),
        ("10%\r100%\n", "100%\n"),
        ("abc\rX\n", "Xbc\n"),
        ("long line\rshort\x1b[K\n", "short\n"),
        ("long line\r\x1b[2Kshort\n", "short\n"),
        ("abc\b\bX\n", "aXc\n"),
        ("\x1b[31mred\x1b[0m\n", "red\n"),
        ("\x1b]0;title\x07text\n", "text\n"),
        ("dos\r\nlines\r\n", "dos\nlines\n"),
        ("a\nb\n\x1b[2A1\n2\n", "1\n2\n"),
        ("a\x1b[3Cb", "a   b"),
        ("bell\x07", "bell"),
        ("unfinished\x1b[", "unfinished"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("é 中 \x1b[1mx\x1b[0m", "é 中 x"),
        ("x\x1b[999999999Cy", "x" + " " * 999 + "y"),
    ],
)
def test_the_final_state_is_shown(raw, shown):
    assert render(raw) == shown


def test_a_finished_progress_bar_is_one_line():
    raw = io.StringIO()
    for _ in tqdm(range(300), mininterval=0, desc="прогресс", file=raw):
        pass
    raw.write("\x1b[31mred\x1b[0m <script>alert(1)</script>\n")
    lines = render(raw.getvalue()).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("прогресс: 100%")
    assert lines[1] == "red <script>alert(1)</script>"


def test_nested_progress_bars_stay_on_their_lines():
    raw = io.StringIO()
    for _ in tqdm(range(3), mininterval=0, desc="outer", position=0, file=raw):
        for _ in tqdm(range(3), mininterval=0, desc="inner", position=1, leave=False, file=raw):
            pass
    lines = [line for line in render(raw.getvalue()).splitlines() if line.strip()]
    assert len(lines) == 1
    assert lines[0].startswith("outer: 100%")


def test_cursor_moves_above_the_first_line_are_harmless():
    assert render("a\n\x1b[99Ab") == "b\n"


def test_colours_are_kept_where_they_are_wanted_each_run_with_all_of_its_codes():
    red, reset = "\x1b[31m", "\x1b[0m"
    assert render(f"{red}red{reset} plain") == "red plain"
    assert render(f"{red}red{reset} plain", painted=True) == f"{red}red{reset} plain"
    assert render(f"{red}a\x1b[1mb", painted=True) == f"{red}a{reset}\x1b[31;1mb{reset}"
    assert render(f"{red}12 %\r{reset}99", painted=True) == f"99{red} %{reset}"
    assert render("\x1b[31mx\x1b[0;32my\n", painted=True) == f"\x1b[31mx{reset}\x1b[32my{reset}\n"
    assert render("\x1b[38;5;208;48;2;1;2;3;1;22mx", painted=True) == f"\x1b[38;5;208;48;2;1;2;3mx{reset}"
    assert render("\x1b[31;44;7m\x1b[39;49;27mx", painted=True) == "x"
    assert render("\x1b[<0;1;2mx", painted=True) == "x"


def test_paint_that_is_laid_on_again_and_again_is_told_once():
    assert render("\x1b[1;38;5;208m." * 500, painted=True) == "\x1b[1;38;5;208m" + "." * 500 + "\x1b[0m"
