// Package protocol defines the messages between the driver of a job and its
// agents.
//
// The driver is the process that runs a job: the launcher (plx launch), or for
// a detached job the agent on the chief's host (the host of worker 0). Every
// host of a job has one agent, which starts and supervises the tasks there. A
// visitor is a command that talks to an agent without being the driver, such
// as plx stop.
//
// Messages travel over any byte stream. There are three kinds: the SSH channel
// on which the launcher started the agent, a later SSH channel that is
// connected to the agent's local socket, and a TCP connection between two
// agents of the job that have authenticated each other.
//
//	driver                                 agent
//	       Call -------------------------->  before the job: query the host and its GPUs
//	<----- Reply
//	------ magic string ------------------>
//	<----- magic string -------------------
//	       Spec -------------------------->  describes the job; only to an agent that has no job yet (plx agent start)
//	       Attach ------------------------>
//	<----- State                            what the agent is doing; visitors get it on each change
//	       Renew ------------------------->  extends the agent's lease; answered by Renewed
//	       Prepare ----------------------->  open sockets for the tasks
//	<----- Prepared                         the addresses of these sockets
//	       Check ------------------------->  connect to the other agents
//	<----- Checked                          the agents that could not be reached
//	       Start ------------------------->  start the tasks
//	<----- Started, Exited, TaskReport, Notice
//	       Checkpoint -------------------->  only to the chief's agent, which answers with a TaskReport
//	       Stop -------------------------->  stop some tasks or all; the agent keeps running
//	       Prepare, ...                     the next generation, perhaps with other tasks
//	       End --------------------------->  stop all tasks, then the agent
//	<----- (end of stream)                  no process of the job is left on the host
//
// A generation is one run of all tasks; a restart begins the next one. Before
// an agent prepares a generation, it kills all processes of the previous one.
// It refuses to prepare a generation that is over.
//
// A message is a little-endian uint32 length followed by JSON. A lost
// connection loses no information, because State repeats everything that
// Exited and TaskReport have reported.
//
// These messages do not carry the output of tasks, except for the first 64 KiB
// of each host's tasks (Logged). Package logs transfers the rest.
package protocol
