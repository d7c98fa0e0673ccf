// Package jobstate is the state machine of a job. It decides when agents open
// sockets, when tasks start, who failed first, whether another generation follows,
// and what the verdict is.
//
// The machine is pure: events go in, commands come out. It does no I/O, has no clock
// and starts no goroutine. So a whole run can be written down as a transcript
// (testdata), and a test can play any order of events. Package driver carries the
// commands out.
//
//	m := jobstate.New(plan)
//	commands := m.Step(jobstate.Up{Host: 0, State: state})
//
// # Course of a job
//
//	gathering -> preparing -> checking -> starting -> running
//	                                                    | all workers done
//	                                                    v
//	      failure: settling -> stopping -> over <- finishing
//	                              | another generation follows
//	                              v
//	                          regrouping -> preparing the next generation
//
// # Small machines
//
// Machine composes small machines. Each owns the state of its subject, gets an event
// and a view of the job that it only reads, and returns commands and what it decides: as a
// rule a decision, which only Machine.decide reads. Only Machine writes the stage and the
// verdict.
//
//	start.go      sockets, reachability, start of the tasks
//	verdict.go    failures are collected, one is blamed: the verdict and its exit status
//	tolerance.go  losses of workers that the job tolerates
//	restart.go    whether another generation follows a failure, and when it begins
//	scale.go      change of hosts, and which changes are possible
//	save.go       checkpoint before a stop
//
// Package hang finds out whether nothing moves in any task.
//
// They read tables, which hold facts: hosts.go and generation.go (where tasks run, how
// they ended and which steps they have made). heard.go turns events into calls, machine.go
// changes stages, end.go leads from failures and stops to the end of the job.
//
// # Generations
//
// A generation is one run of all tasks. The machine counts generations; every message
// of an agent carries the number, and the machine ignores messages of another
// generation. Between two generations nothing of the job runs: the next one begins
// when the backoff is over, and when every host has a connected agent or nothing can
// run there any more. Hosts without an agent, and hosts that were blamed too often,
// get no tasks. The tasks of the others are numbered again.
//
// The machine does not restart a job after a failure that a restart would only repeat:
// one before tasks were started, a program that cannot be started, wrong use, a task
// that gives up before the job has made a step.
//
// # Blame
//
// The first failure that the machine sees is often not the cause. A task dies, and its
// peers report a lost connection a moment before the machine learns of the death. So
// the machine collects failures for Plan.Settle. Then it blames the first one that
// does not blame a peer; if all blame peers, it blames the peer that most of them name.
//
// # Tolerated losses
//
// The chief may report that its job tolerates the loss of other workers. From then on
// the failure of a worker is a notice, and so is the loss of a host that runs neither
// the chief nor a server. The job is done when the workers that are left are done. It
// fails when fewer than Restarts.MinWorkers are left. A worker that blames a task which
// the job needs is in doubt for Plan.Settle: if that task fails too, the worker was its
// victim.
package jobstate
