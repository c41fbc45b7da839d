"""``ode-transformer checkpoint WHAT``: average, convert and verify checkpoints."""

# name: (module, what it does)
SUBCOMMANDS = {
    "average": ("ode_transformer.checkpoints.averaging", "average the parameters of several checkpoints"),
    "convert": (
        "ode_transformer.models.conversion",
        "convert checkpoints of the authors' released code to the names of this package",
    ),
    "verify": ("ode_transformer.cli.verify", "check that checkpoints run no code in fairseq's own commands"),
}
