// Package jobstate is the state machine of a job. It decides when agents open
// sockets and start tasks, which task or host is to blame for a failure,
// whether the job is restarted, and what the job's verdict (result) is.
//
// The machine is a pure function of its input: events go in, commands come
// out. It does no I/O, reads no clock and starts no goroutine. So a test can
// play any order of events, and testdata holds whole runs as transcripts.
// Package driver delivers the events and carries out the commands.
//
//	m := jobstate.New(plan)
//	commands := m.Step(jobstate.Up{Host: 0, State: state})
//
// # Stages of a job
//
//	gathering -> preparing -> checking -> starting -> running
//	                                                    | all workers done
//	                                                    v
//	      failure: settling -> stopping -> over <- finishing
//	                              | another generation follows
//	                              v
//	                          regrouping -> preparing the next generation
//
// # Submachines
//
// Machine is composed of smaller machines. Each submachine owns the state of
// one subject and has read-only access to the job through a view. It takes an
// event and returns commands and, in most cases, a decision, which
// Machine.decide carries out. Only Machine changes the stage and the verdict.
//
//	start.go      opening sockets, checking connections between hosts, starting tasks
//	verdict.go    collecting failures, choosing the culprit, building the verdict
//	tolerance.go  losses of workers that the job tolerates
//	restart.go    whether another generation follows a failure, and when
//	scale.go      changing the hosts of a running job
//	save.go       checkpoint before a requested stop
//
// Package hang detects a job in which no task makes progress.
//
// The submachines read the facts in hosts.go and generation.go: where tasks
// run, how they ended and which steps they have made. The file messages.go
// passes messages from agents to the submachines; machine.go changes stages;
// end.go handles failures and stops until the job has ended.
//
// # Generations
//
// A generation is one run of all tasks; a restart begins the next one. Every
// message of an agent carries the number of its generation, and the machine
// ignores messages of any other generation than the current one.
//
// Between two generations no process of the job runs. The next generation
// begins when the backoff time is over and every host either has a connected
// agent or can no longer run anything. A host without an agent gets no tasks.
// Neither does a host that was blamed for too many failures. The tasks on the
// remaining hosts are renumbered.
//
// The machine does not restart a job if the same failure would only happen
// again. Such failures are: no task was ever started, the program cannot be
// started, the program reports wrong usage, or a task exits before the job has
// made a step.
//
// # Blame
//
// The first failure that the machine sees is often not the cause. When a task
// dies, its peers may report a lost connection before the machine learns of
// the death. So the machine collects failures for the time Plan.Settle. Then
// it blames the first failure that does not give a lost peer as its reason. If
// all failures give a lost peer, it blames the peer that most of them name.
//
// # Tolerated losses
//
// The chief (worker 0) may report that its job tolerates the loss of other
// workers. From then on, the failure of such a worker only causes a notice to
// the user. The loss of a host that runs neither the chief nor a server also
// only causes a notice. The job succeeds when the remaining workers are done.
// It fails when fewer than Restarts.MinWorkers remain.
//
// If a worker fails and names the chief or a server as the lost peer, the
// machine waits for Plan.Settle before it decides. If the named task fails
// too, the worker was only its victim.
package jobstate
