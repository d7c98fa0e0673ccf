// Package provision makes on hosts what the tasks of a job find there: the working directory, the
// virtual environment, what --setup changes, and the data address on a network interface.
//
//	dir, err := provision.ReadWorkdir(ctx, ".", false, printer)
//	if err == nil {
//		err = provision.Ready(ctx, agents, gpus, provision.Recipe{Files: &dir, Spec: spec, Printer: printer})
//	}
//
// [Ready] is for all hosts of a launch, and for those that join by plx scale; [Again] for a host
// that comes back.
//
// # What it refuses to do
//
// It starts no task and no agent of a job, and it builds no program: package artifacts does.
package provision
