// Package launcher runs one program on many hosts as one job, from the resource file to
// the verdict.
//
//	code, err := launcher.Launch(ctx, launcher.Config{
//		Reach:    hosts.Reach{Hosts: lines}, // from package hostfile
//		Program:  "./train", Args: []string{"--learning-rate", "0.1"},
//		Terminal: console.Terminal{Stdout: os.Stdout, Stderr: os.Stderr},
//	}, signals)
//
// # The order of a launch
//
// It is the only package that knows the order. Prepare (prepare.go): open the hosts,
// survey them, place the tasks, pack and send the artifacts, name the job. Then drive.go
// drives an attached job until its verdict, and handover.go hands a detached job over to
// the agent of the chief's host. Every step is the work of another package.
//
// # What it refuses to do
//
// It does not leave out a host that cannot be used: the launch fails. It does not work on
// jobs that were launched before: package jobs does.
package launcher
