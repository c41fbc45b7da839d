"""``ode-transformer analyse WHAT``: measurements on trained models.

A measurement is a module with ``add_arguments(parser)`` and ``run(args) -> int``, as any subcommand.
"""

# name: (module, what it does)
SUBCOMMANDS = {
    "coefficients": (
        "ode_transformer.analysis.depth.coefficients",
        "the stage weights of a trained model, layer by layer",
    ),
    "stage-inputs": (
        "ode_transformer.analysis.depth.stage_inputs",
        "what the stages of a trained model's steps read and add, layer by layer",
    ),
    "gradient-norms": (
        "ode_transformer.analysis.depth.gradient_norms",
        "how much of the loss's gradient reaches each layer",
    ),
    "truncation-error": (
        "ode_transformer.analysis.depth.truncation_error",
        "how exact the steps of trained models are as solutions of y' = F(y), layer by layer",
    ),
    "splitting-error": (
        "ode_transformer.analysis.depth.splitting_error",
        "how exact a step of a splitting is, measured",
    ),
    "linear-probe": (
        "ode_transformer.analysis.linear_probe",
        "what a model loses when one of its layers becomes a linear map",
    ),
    "outputs": (
        "ode_transformer.analysis.outputs",
        "translations of several systems: lengths, BLEU, accuracy by position and frequency, attention maps",
    ),
    "examples": (
        "ode_transformer.analysis.examples",
        "what several systems make of chosen sentences, side by side",
    ),
    "error-types": (
        "ode_transformer.analysis.error_types",
        "corrections of several systems by type of error",
    ),
    "curves": (
        "ode_transformer.analysis.curves",
        "training and validation curves of some runs, by their logs",
    ),
    "scaling": (
        "ode_transformer.studies.measure_scaling",
        "a larger architecture, by what depth and width are worth to it in short trainings",
    ),
    "glue": (
        "ode_transformer.glue.glue_command",
        "fine-tune a pre-trained encoder on the eight GLUE tasks of the Macaron Net paper",
    ),
}
