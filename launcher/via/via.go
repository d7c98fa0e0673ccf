// Package via connects to a host through a command of the user's that starts a
// shell there, such as "kubectl exec -i POD -- /bin/sh".
//
//	client, err := via.Dial(ctx, via.Config{Command: "docker exec -i {host}", Host: "web", Agent: agent})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
// Dial sends a script to the shell. The script starts "plx agent serve" on the
// host. From then on the command's stdin and stdout carry an SSH connection:
// package ssh is the client, and package sshserver is the server on the host.
// So many commands of plx can share one pipe, and keepalives detect a dead
// pipe. The exit status, quoting and start-up time of the user's command do
// not matter.
//
// The package trusts the user's command, and every user who can run it. It
// assumes that the command reaches the right host, and that no other process
// reads the pipe.
//
// TODO: run this with docker, kubectl and tsh. The tests use a command that
// enters a namespace of this machine.
package via

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/bootstrap"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/ssh"
)

// startLimit limits the time until the user's command has started a shell on
// the host. The command may have to queue, for example in Slurm.
const startLimit = 30 * time.Second

// Config describes how to reach one host.
type Config struct {
	// Command is a command line for /bin/sh on this machine. In it {host}
	// stands for the host's name, and {command} for the command to run on the
	// host. If {command} is missing, plx appends it. The environment variable
	// PLX_HOST also holds the host's name, so that a script can split the name
	// into parts.
	Command string
	Host    string
	// Guess is the plx executable that plx expects the host to need, chosen
	// before the host's platform is known. The zero value means that plx has
	// no expectation.
	Guess envsync.Blob
	// Agent returns the plx executable for a platform.
	Agent func(context.Context, envsync.Platform) (envsync.Blob, error)
	// Env is the environment of Command. If it is nil, Command gets the
	// environment of this process.
	Env []string
	// Step is true if the end of Command kills all processes on the host that
	// Command has started, as the end of a Slurm step does. The agent then
	// exits only after all processes have ended that were started through it.
	Step bool
}

// plainWord matches the first word of a command line if that word has no
// character that is special to the shell.
var plainWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*([\w./+][\w./+-]*)(\s|$)`) })

// Check returns an error if command does not mention the host, or if its
// program is not installed on this machine. Such a command would fail for
// every host.
func Check(ctx context.Context, command string) error {
	if !strings.Contains(command, "{host}") && !strings.Contains(command, "PLX_HOST") {
		return exit.Mistake(fmt.Errorf("--via %q: {host} is missing", command), "--via 'docker exec -i {host}'")
	}
	word := plainWord().FindStringSubmatch(command)
	if word == nil {
		return nil // the first word is shell syntax, which only a shell can resolve
	}
	if err := exec.CommandContext(ctx, "/bin/sh", "-c", "command -v "+word[1]).Run(); err != nil && ctx.Err() == nil {
		return exit.Mistake(fmt.Errorf("--via %q: this machine has no command %s", command, word[1]), "install %s, or write its whole path", word[1])
	}
	return nil
}

// commandLine returns the user's command, with {host} and {command} replaced,
// to run on this machine. {command}, the program to start on the host, becomes
// /bin/sh. It contains no character that a shell on the way would interpret.
func (c *Config) commandLine() string {
	command := c.Command
	if !strings.Contains(command, "{command}") {
		command += " {command}"
	}
	return strings.NewReplacer("{host}", ssh.Quote(c.Host), "{command}", "/bin/sh").Replace(command)
}

// Dial connects to the host and returns an SSH client for it.
func Dial(ctx context.Context, c Config) (*ssh.Client, error) {
	client, err := dial(ctx, &c)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", c.Host, err)
	}
	return client, nil
}

func dial(ctx context.Context, c *Config) (*ssh.Client, error) {
	p, err := startPipe(c)
	if err != nil {
		return nil, err
	}
	client, err := p.startServer(ctx, c)
	if err != nil {
		p.Close() // err is more useful than an error of Close
		return nil, err
	}
	return client, nil
}

// startServer makes the shell on the host start an SSH server, and connects to that
// server. The shell reads the script from the pipe. The script is one compound
// command in braces, so that the shell reads it completely before it runs any
// part.
func (p *pipe) startServer(ctx context.Context, c *Config) (*ssh.Client, error) {
	way := bootstrap.New(bootstrap.Config{Host: c.Host, Strict: true, Expected: c.Guess, Agent: c.Agent, Begin: startLimit})
	way.Args = "agent serve " + way.Marker
	if c.Step {
		way.Args = "agent step " + way.Marker
	}
	// The error is ignored: if the command has exited, the write fails, and
	// the following read reports what the command printed.
	_, _ = io.WriteString(p, "{\n"+way.Script()+"}\n")
	if err := way.Run(ctx, p); err != nil {
		return nil, p.explain(err)
	}
	key, err := way.Line(ctx, startLimit)
	if err != nil {
		p.reason(err, "") // waits until the command has exited and its stderr is complete
		if refused := way.Limited(p.LastStderrLine()); refused != nil && errors.Is(err, io.EOF) {
			return nil, exit.WithHint(refused, bootstrap.LimitHint)
		}
		return nil, p.explain(err)
	}
	public, _, _, _, err := gossh.ParseAuthorizedKey([]byte(key))
	if err != nil {
		return nil, fmt.Errorf("the agent on the host printed no SSH key: %q", key)
	}
	own, err := ssh.GenerateKey()
	if err != nil {
		return nil, err
	}
	p.Explain = func(err error) error { return p.reason(err, "") }
	return ssh.NewClientConn(ctx, p, ssh.Config{Host: c.Host, User: "plx", Signers: []gossh.Signer{own}, HostKey: public})
}

// explain turns an error of package bootstrap into a message about the --via
// command, with a hint.
func (p *pipe) explain(err error) error {
	var refused *bootstrap.RefusedError
	var silent *bootstrap.NoReplyError
	switch {
	case errors.Is(err, bootstrap.ErrEcho):
		return exit.WithHint(fmt.Errorf("%s echoes its input, as a terminal does", p), "let it run without a terminal: docker exec -i instead of -it, ssh -T")
	case errors.As(err, &refused) && refused.Homeless:
		return exit.WithHint(err, "set HOME in the command of --via: env HOME=/root")
	case errors.As(err, &refused) && refused.Limited:
		return exit.WithHint(err, bootstrap.LimitHint)
	case errors.Is(err, bootstrap.ErrStart):
		errors.As(err, &silent)
		return p.quote(fmt.Errorf("%s started no shell within %v", p, startLimit), silent.Last)
	case errors.Is(err, bootstrap.ErrNoise):
		return exit.WithHint(fmt.Errorf("%s printed more than 1 MiB and does not seem to run a shell", p), tryHint)
	case errors.As(err, &silent):
		return p.reason(silent.Err, silent.Last)
	}
	return err
}

// tryHint is the hint for a --via command that starts no shell on the host.
const tryHint = "try the command of --via by hand: echo 'echo hello' | COMMAND must print hello, without a terminal and without a password"
