//go:build linux

// Package watchdog starts the agent of a job and outlives its supervisor.
//
//	socket, err := watchdog.Start(ctx, folder, spec)   // in "plx agent start"
//	err = watchdog.Run(folder)                         // in "plx agent watchdog"
//
// Start starts the watchdog in a session of its own; Run starts the supervisor.
// The supervisor writes a beat every second. The watchdog kills a supervisor that
// is stuck, before the lease ends. When the supervisor has ended, the watchdog
// kills every process that it left and deletes the secret. If the supervisor has
// recorded no verdict, the watchdog records why it ended. If the watchdog ends first,
// the supervisor ends the job's part on the host, see [Inherited].
//
// The watchdog has no network connection and starts no task, so that little can
// go wrong with it.
package watchdog
