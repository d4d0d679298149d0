COMMANDS = ("pretrain", "evaluate", "info")


def test_the_commands_have_their_help(elmo):
    listed = elmo("--help").output
    for name in COMMANDS:
        assert name in listed
        result = elmo(name, "--help")
        assert result.exit_code == 0 and "Usage" in result.text


def test_the_list_of_commands_has_whole_sentences(elmo):
    _, rows = elmo("--help").output.split("Commands:")
    for row in rows.strip().splitlines():
        assert row.endswith(".") and not row.endswith("...")
