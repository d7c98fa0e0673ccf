// Package embedded runs SSH servers inside this process, on 127.0.0.2,
// 127.0.0.3 and so on, so that a launch without hosts takes the same path as one
// with them.
//
//	cluster, err := embedded.Start(ctx, 2)
//	if err != nil {
//		return err
//	}
//	defer cluster.Close()
//	client, err := ssh.Dial(ctx, cluster.Configs()[0])
//
// Start makes the keys and keeps them in memory only, so nobody else can log in. Commands
// run as the user of this process, in its home and with its environment.
//
// A server behaves as sshd does where plx depends on it: a command outlives its channel,
// exit statuses and signals are reported, and SSH_CONNECTION is set. It refuses terminals,
// forwarding and passwords, and it has no login shell and so no start-up files.
package embedded
