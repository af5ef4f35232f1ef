"""What operators decide about components: silence, drain, replaced, forget."""
