"""What is said about claims, word by word, where no test of the behaviour shows the message."""

from parley.control.claims.messages import first_in_line


def test_a_pod_that_has_to_let_another_one_go_first_reads_why_and_what_to_do() -> None:
    assert first_in_line("team", "disk") == (
        "claim team/disk is not shareable, and a pod of higher priority, or that has waited longer, gets it "
        "first: wait until that pod has ended, or use a template"
    )
