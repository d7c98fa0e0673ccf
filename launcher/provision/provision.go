// Package provision prepares hosts for the tasks of a job: it connects to
// them, installs plx, and sends the program, the working directory and the
// virtual environment. It also runs the --setup line on each host.
//
//	recipe := provision.Recipe{Set: set, Printer: printer, Files: &dir, Spec: spec}
//	err := recipe.Survey(ctx, targets) // find out where tasks can run
//	if err == nil {
//		err = recipe.Ready(ctx, targets)
//	}
//
// The preparation has stages, which ready.go lists. plx launch and plx scale
// run all stages. The driver of a job also runs all stages, for a host that
// returns to the job. The preparation stops at the first stage that fails on
// any host. plx doctor runs only the stages that leave nothing of a job on a
// host. It reports their errors and continues with the other hosts.
//
// # What it refuses to do
//
// The package starts no task and no agent of a job. It builds no program;
// package artifacts does that.
package provision
