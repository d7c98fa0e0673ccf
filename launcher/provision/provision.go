// Package provision makes hosts ready for the tasks of a job: from the connection to the working
// directory, the virtual environment and what --setup changes.
//
//	recipe := provision.Recipe{Set: set, Printer: printer, Files: &dir, Spec: spec}
//	err := recipe.Survey(ctx, targets) // then it is known where tasks can run
//	if err == nil {
//		err = recipe.Ready(ctx, targets)
//	}
//
// ready.go lists the stages. A launch takes them all, and so do plx scale and a host that comes
// back; it ends at the first stage at which a host fails. plx doctor takes those that leave nothing
// of a job on a host. It makes findings of the errors, and goes on with the other hosts.
//
// # What it refuses to do
//
// It starts no task and no agent of a job, and it builds no program: package artifacts does.
package provision
