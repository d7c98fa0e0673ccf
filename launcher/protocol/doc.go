// Package protocol is the messages between the driver of a job and its agents.
//
// The driver runs a job: it is the launcher while that is attached, and the agent
// of the chief's host if the job is detached. Each host of a job has one agent. They
// talk over any stream: the SSH channel on which the agent was started, a later one that is
// relayed to the agent's local socket, or TCP between two agents that have proved the job's secret. A visitor is a
// command that talks to an agent and is not the driver, such as plx stop.
//
//	driver                                 agent
//	       Call -------------------------->  before the job: what the host is and has, its GPUs
//	<----- Reply
//	------ magic ------------------------->
//	<----- magic --------------------------
//	       Spec (only to "agent start") -->
//	       Attach ------------------------>
//	<----- State                            what the agent does; visitors get it on each change
//	       Renew ------------------------->  keeps the lease; answered by Renewed
//	       Prepare ----------------------->
//	<----- Prepared                         sockets are open, at these addresses
//	       Check ------------------------->
//	<----- Checked                          which other agents could not be reached
//	       Start ------------------------->
//	<----- Started, Exited, Said, Notice
//	       Checkpoint -------------------->  to the chief's agent, which answers with Said
//	       Stop -------------------------->  ends some tasks or all; the agent stays
//	       Prepare, ...                     the next generation, perhaps with other tasks
//	       End --------------------------->  ends all tasks, then the agent itself
//	<----- (end of stream)                  nothing of the job is left on the host
//
// An agent ends what is left of a generation before it prepares the next one, and
// refuses a generation that is over.
//
// Messages are JSON in frames of a little-endian uint32 length. A lost connection loses
// no fact: State repeats all that Exited and Said told.
//
// The package carries no log bytes. They travel on a channel of their own, see
// package logs.
package protocol
