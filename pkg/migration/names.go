package migration

const (
	// LabelPrefix begins the labels and annotations of the engine.
	LabelPrefix = "eventmesh-migration.kyma-project.io/"
	// MarkAnnotation is on every object that a run creates, in the create
	// call itself: "<run>/<unit>/<change>". It tells the run's own objects from those of
	// others when the outcome of the call is unknown.
	MarkAnnotation = LabelPrefix + "change"
)
