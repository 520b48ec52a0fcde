"""What methods are composed of: losses, server-side distillation, sub-models, split models, model caches. No method by
name."""
