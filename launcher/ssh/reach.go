package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/plx-run/plx/launcher/ssh/pipe"
	"github.com/plx-run/plx/launcher/ssh/sshconfig"
)

// lookUp asks getent for the addresses of a name that the resolver of Go does not find: the
// machine may know it by mDNS, a directory or its own name only. ssh finds these through
// libc, to which plx is not linked.
func lookUp(ctx context.Context, t sshconfig.Target) (addresses []string) {
	database := map[string]string{"tcp4": "ahostsv4", "tcp6": "ahostsv6"}[t.Network]
	out, err := exec.CommandContext(ctx, "getent", cmp.Or(database, "ahosts"), t.HostName).Output()
	if err != nil {
		return nil // no getent here, or it does not know the name either
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		ip, kind, _ := strings.Cut(line, " ")
		if seen[ip] || !strings.Contains(kind, "STREAM") {
			continue
		}
		seen[ip] = true
		addresses = append(addresses, net.JoinHostPort(ip, strconv.Itoa(t.Port)))
	}
	return addresses
}

// startProxy runs the ProxyCommand as ssh does: by the user's shell.
func startProxy(t sshconfig.Target) (net.Conn, error) {
	conn, err := pipe.Start(exec.Command(cmp.Or(os.Getenv("SHELL"), "/bin/sh"), "-c", "exec "+t.ProxyCommand), t.Address, true)
	if err != nil {
		return nil, fmt.Errorf("start ProxyCommand: %w", err)
	}
	// A command that ended with 0 has lost its server: that may be for load.
	conn.Explain = func(err error) error {
		end := conn.End()
		if end == nil {
			return fmt.Errorf("ProxyCommand %q: %w", t.ProxyCommand, err)
		}
		text := fmt.Sprintf("ProxyCommand %q ended with %v", t.ProxyCommand, end)
		if said := conn.Said(); said != "" {
			text += ": " + said
		}
		if end.Success() {
			return fmt.Errorf("%s: %w", text, io.EOF)
		}
		return errors.New(text)
	}
	return conn, nil
}
