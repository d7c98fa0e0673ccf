// Package via reaches one host by a command that gives the standard input and output of a
// shell there, as "kubectl exec -i POD -- /bin/sh" does.
//
//	client, err := via.Dial(ctx, via.Config{Command: "docker exec -i {host}", Host: "web", Agent: agent})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
// Dial talks to the shell until plx itself runs there, as "plx agent serve". From then on
// the pipe is a connection of SSH like any other: package ssh speaks on this side, package
// sshserver on the other. So all commands of plx share one pipe, a silent pipe is
// noticed, and nothing depends on the exit status, the quoting or the speed with which
// the user's command starts.
//
// Whoever can run the command, and the command itself, are believed: that the pipe leads to
// the right host, and that nobody else reads it.
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

// startLimit bounds the start of the user's command, which may have to wait for others.
const startLimit = 30 * time.Second

// Config tells how to reach a host.
type Config struct {
	// Command is a line for /bin/sh of this machine. {host} in it is the host's name and
	// {command} the command to run there, which is appended if {command} is missing. The
	// line finds the name in PLX_HOST too, to take it apart.
	Command string
	Host    string
	// Guess is the plx that the host probably needs. Zero: it is not known.
	Guess envsync.Blob
	// Agent returns plx for a platform.
	Agent func(context.Context, envsync.Platform) (envsync.Blob, error)
	// Env is the environment of the command. Nil: that of this process.
	Env []string
	// Step tells that all processes on the host end with the command that started them, as
	// in a step of Slurm. That command then waits for what others have left.
	Step bool
}

// plainWord is the first word of a command that the shell takes as it is.
var plainWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*([\w./+][\w./+-]*)(\s|$)`) })

// Check refuses a command that names no host, and one that is not on this machine: it would
// fail for each host.
func Check(ctx context.Context, command string) error {
	if !strings.Contains(command, "{host}") && !strings.Contains(command, "PLX_HOST") {
		return exit.Mistake(fmt.Errorf("--via %q: it does not say where {host} goes", command), "--via 'docker exec -i {host}'")
	}
	word := plainWord().FindStringSubmatch(command)
	if word == nil {
		return nil // only the shell knows
	}
	if err := exec.CommandContext(ctx, "/bin/sh", "-c", "command -v "+word[1]).Run(); err != nil && ctx.Err() == nil {
		return exit.Mistake(fmt.Errorf("--via %q: this machine has no command %s", command, word[1]), "install %s, or write its whole path", word[1])
	}
	return nil
}

// line is the command for /bin/sh of this machine. It runs /bin/sh on the host, a word that
// is the same with and without a shell in between.
func (c *Config) line() string {
	command := c.Command
	if !strings.Contains(command, "{command}") {
		command += " {command}"
	}
	return strings.NewReplacer("{host}", ssh.Quote(c.Host), "{command}", "/bin/sh").Replace(command)
}

// Dial connects to the host.
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
	client, err := p.become(ctx, c)
	if err != nil {
		p.Close() // the first error says more
		return nil, err
	}
	return client, nil
}

// become makes the shell an SSH server, and connects to it. The shell reads its script from the
// pipe: one compound command, which it has read whole before it runs any of it.
func (p *pipe) become(ctx context.Context, c *Config) (*ssh.Client, error) {
	way := bootstrap.New(bootstrap.Config{Host: c.Host, Strict: true, Guess: c.Guess, Agent: c.Agent, Begin: startLimit})
	way.Act = "agent serve " + way.Word
	if c.Step {
		way.Act = "agent step " + way.Word
	}
	// A command that has ended takes nothing. What it printed before tells why.
	_, _ = io.WriteString(p, "{\n"+way.Script()+"}\n")
	if err := way.Run(ctx, p); err != nil {
		return nil, p.explain(err)
	}
	key, err := way.Line(ctx, startLimit)
	if err != nil {
		p.reason(err, "") // which waits for the end
		if refused := way.Limited(p.Said()); refused != nil && errors.Is(err, io.EOF) {
			return nil, exit.WithHint(refused, bootstrap.LimitHint)
		}
		return nil, p.explain(err)
	}
	public, _, _, _, err := gossh.ParseAuthorizedKey([]byte(key))
	if err != nil {
		return nil, fmt.Errorf("the agent answers with no key: %q", key)
	}
	own, err := ssh.NewKey()
	if err != nil {
		return nil, err
	}
	p.Explain = func(err error) error { return p.reason(err, "") }
	return ssh.Over(ctx, p, ssh.Config{Host: c.Host, User: "plx", Signers: []gossh.Signer{own}, HostKey: public})
}

// explain says in words of --via why there is no plx on the host.
func (p *pipe) explain(err error) error {
	var refused *bootstrap.Refused
	var silent *bootstrap.NoAnswer
	switch {
	case errors.Is(err, bootstrap.ErrEcho):
		return exit.WithHint(fmt.Errorf("%s sends back what it is sent, as a terminal does", p), "let it run without a terminal: docker exec -i instead of -it, ssh -T")
	case errors.As(err, &refused) && refused.Homeless:
		return exit.WithHint(err, "set HOME in the command of --via: env HOME=/root")
	case errors.As(err, &refused) && refused.Limited:
		return exit.WithHint(err, bootstrap.LimitHint)
	case errors.Is(err, bootstrap.ErrStart):
		errors.As(err, &silent)
		return p.quote(fmt.Errorf("%s gave no shell within %v", p, startLimit), silent.Last)
	case errors.Is(err, bootstrap.ErrNoise):
		return exit.WithHint(fmt.Errorf("%s printed more than 1 MiB and does not seem to run a shell", p), tryHint)
	case errors.As(err, &silent):
		return p.reason(silent.Err, silent.Last)
	}
	return err
}

// tryHint is the hint for a command that gives no shell.
const tryHint = "try the command of --via by hand: echo 'echo hello' | COMMAND must print hello, without a terminal and without a password"
