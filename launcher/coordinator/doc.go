// Package coordinator decides how a job runs: when sockets are opened, when
// tasks start, who failed first and what the verdict is.
//
// It is a pure state machine. Events go in, commands come out; it does no
// I/O, has no clock and starts no goroutine, so that a whole run can be
// written down as a transcript and a test can play any order of events.
// Package conductor carries the commands out.
//
//	m := coordinator.New(plan)
//	commands := m.Step(coordinator.Up{Host: 0, State: state})
//
// # Course of a job
//
//	gathering -> preparing -> checking -> starting -> running
//	                                                    | all workers done
//	                                                    v
//	      failure: settling -> stopping -> over <- finishing
//	                              | Plan.Restarts
//	                              v
//	                          regrouping -> preparing the next generation
//
// # Generations
//
// There is one number, and it is counted here. Whatever an agent says carries
// it, and what is said of another generation counts for nothing. While it
// regroups nothing of the job runs: the next generation begins when the backoff
// is over and of each host it is known that it has an agent that is connected,
// or that nothing can run there any more. Hosts without an agent, and those
// that were blamed too often, get no tasks; the others' are numbered anew.
//
// What only a mistake can be is not repeated: a failure before tasks were
// started, a program that cannot be started, wrong use, a task that gives up
// before any has made a step.
//
// Tasks tell how many steps they have made, and from which checkpoint their
// generation went on. So once the chief has made one the user is told how many
// of those before are made again.
//
// # Workers that are not needed
//
// The chief may say that its job goes on when other workers are lost: the
// trainer does where no step waits for them. From then on a worker that fails,
// or a host without the chief and without servers, is a notice, and the job is
// done when the workers that are left are. Fewer than Restarts.MinWorkers are
// too few. A worker that blames a task which is needed is in doubt for
// Plan.Settle: should that one fail too, it was its victim.
//
// # Who is to blame
//
// The first failure seen is often not the cause: one task dies and its peers
// report a lost connection a moment sooner than the death is noticed. So
// failures are collected for Plan.Settle before one is chosen: the first that
// does not blame a peer; when all blame peers, the peer that they blame.
package coordinator
