// Package ssh reaches one host: it runs commands there with streams, copies
// files to it, and closes.
//
//	client, err := ssh.Dial(ctx, ssh.Config{Host: "gpu03"})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	err = client.Run(ctx, "exec uname -a", nil, os.Stdout, os.Stderr)
//
// # What is believed
//
// Dial looks the host up in the user's ssh configuration (package sshconfig) and its key
// in known_hosts. It always checks the key: it does not read StrictHostKeyChecking. It
// refuses an unknown key unless [Config].AcceptNewHostKeys is set. It always refuses a
// key that differs from the recorded one. "~" is [Config].Home in all of these files.
//
// # What is clean
//
// Commands are scripts for /bin/sh, whatever the user's login shell is. The output of the
// shell's start-up files never reaches the caller's writers.
//
// # What is bounded
//
// Dial and handshake have a deadline. If nothing arrives for [Config].DeadAfter, the
// Client gives the connection up, and all calls under way return a [LostError].
//
// # What it refuses to do
//
// It asks for no password or passphrase, allocates no terminal, and forwards no agent and
// no port. It sends no signal, since many servers ignore the request, and does not kill
// processes that a command left. It knows nothing of jobs or tasks. It does not dial
// again: package hosts does.
package ssh
