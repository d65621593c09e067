"""The verbs: deploy, measure, experiment, matrix, rollback."""
