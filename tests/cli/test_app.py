COMMANDS = ("pretrain", "evaluate", "info")


def test_the_commands_have_their_help(elmo):
    listed = elmo("--help").output
    for name in COMMANDS:
        assert name in listed
        result = elmo(name, "--help")
        assert result.exit_code == 0 and "Usage" in result.text
