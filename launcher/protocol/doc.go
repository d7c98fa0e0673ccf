// Package protocol is what a conductor and an agent say to each other.
//
// A conductor runs a job: it is the launcher while that is attached, and the
// agent of the chief's host when the job is detached. There is one agent per
// host and job. They talk over any stream: an SSH channel relayed to the
// agent's local socket, or TCP between two agents that proved the job's
// secret.
//
//	conductor                              agent
//	--------- magic ---------------------->
//	<-------- magic -----------------------
//	          Spec (only to "agent start")->
//	          Attach ---------------------->
//	<-------- State                          what it is doing; again on each change to visitors
//	          Renew ----------------------->  keeps the lease; answered by Renewed
//	          Prepare --------------------->
//	<-------- Prepared                       sockets are open, at these addresses
//	          Check ----------------------->
//	<-------- Checked                        which other agents could not be reached
//	          Start ----------------------->
//	<-------- Started, Exited, Said, Notice
//	          Checkpoint ------------------>  to the chief's, which answers with Said
//	          Stop ------------------------>  some tasks or all, the agent stays
//	          Prepare, ...                   the next generation, perhaps with other tasks
//	          End ------------------------->  all tasks, then the agent itself
//	<-------- (end of stream)                nothing of the job is left on the host
//
// An agent ends what is left of a generation before it prepares the next, and
// refuses one that is over.
//
// Messages are JSON in frames of a little-endian uint32 length. A lost
// connection loses no fact: State repeats all that Exited and Said told.
//
// The package carries no log bytes; those travel on a channel of their own,
// see package logs.
package protocol
