// Package provision makes on hosts what the tasks of a job find there: the working directory, the
// virtual environment, what --setup changes, and the data address on a network interface.
//
//	recipe := provision.Recipe{Printer: printer, Files: &dir, Spec: spec}
//	err := recipe.Ready(ctx, targets)
//
// It is for all hosts of a launch, for those that join by plx scale, and for a host that comes back.
//
// # What it refuses to do
//
// It starts no task and no agent of a job, and it builds no program: package artifacts does.
package provision
