// Package furnish makes on hosts what the tasks of a job find there: the working directory, the
// virtual environment, what --setup changes, and the data address on a network interface.
//
//	dir, err := furnish.ReadWorkdir(ctx, ".", false, printer)
//	if err == nil {
//		err = dir.Send(ctx, agents, furnish.Sending{Printer: printer})
//	}
//	if err == nil {
//		err = furnish.Run(ctx, agents, spec, gpus, printer) // --setup, --check-import
//	}
//
// plx launch calls it for all hosts, plx scale for those that join.
//
// # What it refuses to do
//
// It starts no task and no agent of a job, and it sends no program: package artifacts does.
package furnish
