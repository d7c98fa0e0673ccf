// Package driver runs a job. It carries out the commands of the job's state machine
// (package jobstate) and reports to it what happens.
//
// The driver holds one connection to the agent of each host, renews the agents'
// leases, dials lost connections again, and returns the verdict when every agent
// has ended or is lost. It runs in the launcher while that is attached, and in the
// agent of the chief's host if the job is detached. It does not know which.
//
//	verdict, err := driver.Run(ctx, plan, hosts, driver.Options{Lease: 30 * time.Second})
//
// # Files
//
//	driver.go    Run and its loop: events in, commands out
//	commands.go  what each command does
//	timers.go    the machine's timers
//	ending.go    the end of all agents, after the verdict
//	contact.go   one host: its agents, one after the other
//	dial.go      dials a lost connection again, until the host is lost
//	session.go   one connection: queue, write, receive, renew the lease
//	lease.go     stamps of renewals, and when nothing can run any more on a lost host
//	revive.go    a new agent for a host that has lost its own
//
// The driver starts no agent by itself and reads no log.
package driver
