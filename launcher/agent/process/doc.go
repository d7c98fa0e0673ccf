//go:build linux

// Package process handles the processes of one host: it lists them, starts
// them, reaps them and kills them with all that they have started.
//
//	children, err := process.NewChildren()               // this process becomes a subreaper
//	child, err := children.Start(path, argv, attr, nil)
//	killed, left, err := children.Clear(5 * time.Second) // every descendant is gone
//
// A process is named by its pid and start time, because the kernel reuses pids. A
// process that was found in a listing is signalled through a pidfd, so that no other
// process gets the signal. The package signals only descendants of this process and
// processes that are marked with a job. It never selects processes by program name.
//
// The package knows nothing of tasks, leases or the network.
package process
