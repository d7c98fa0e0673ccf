// Package cluster is the contract between a launcher and a task (a process of
// a job).
//
// A launcher starts every task of a job with environment variables and two
// inherited sockets. This package names them, encodes them for the launcher
// and decodes them for the task. Start with [FromEnvironment] in a task and
// with [Contract.Environ] in a launcher:
//
//	c, ok, err := cluster.FromEnvironment(os.Getenv)
//	if err != nil { ... }
//	if !ok { ... }               // not started by a launcher: run on one device
//	ln, err := c.Listener()      // this task's address in c.Cluster, already open
//
// [Contract.Environ] also sets RANK, WORLD_SIZE, TF_CONFIG and similar
// variables for programs that were written for other launchers.
//
// # Control channel
//
// A task that follows the contract opens its [Control] channel and sends the
// message hello. Such a task is called native. It must send the message
// finished before it exits with status 0, and a heartbeat every few seconds.
// The agent (the launcher's process on each host) kills a task that sends
// nothing for too long. A program that never sends hello is called foreign;
// only its exit status counts.
//
// A generation is one run of all tasks; each restart of the job begins another
// generation. The messages heartbeat, failed and finished contain three
// things: the number of the task's last step, its loss, and the step after
// which the generation began.
//
// # Checkpoints
//
// A relative checkpoint folder is a folder below [Contract.Checkpoints]. Jobs
// of one name share that folder, so the next job finds the checkpoints that
// this one has saved.
//
// Before a job ends early, the agent may send the chief (worker 0) a
// [Checkpoint] message. The chief replies to each with exactly one message of
// the same kind. A reply with the field Step means that a checkpoint of the
// state after that step is complete, manifest included. Either the chief began
// the checkpoint after the request, or the checkpoint contains every step that
// was done before the request. A reply with the field Cause means that there
// is no checkpoint, and why. If the job saves no checkpoints, the chief sends
// a reply with Cause at once.
//
// The chief continues training while it saves. If Stop arrives before the
// chief has replied, the chief need not reply. The launcher waits for the
// reply up to a time limit and then sends Stop.
//
// # Peers
//
// Tasks find each other through [Spec]. Before they exchange anything else,
// they prove to each other that they know the job's secret, with [Dial] and
// [Accept].
//
// The package imports the standard library only. It does not depend on hosts,
// SSH or training.
package cluster
