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

// lookUp runs getent to find the addresses of a host name that Go's resolver
// does not know. getent uses libc, as ssh does. libc also finds names by mDNS
// and in a directory service, and the machine's own name. plx itself is not
// linked to libc.
func lookUp(ctx context.Context, t sshconfig.Target) (addresses []string) {
	database := map[string]string{"tcp4": "ahostsv4", "tcp6": "ahostsv6"}[t.Network]
	out, err := exec.CommandContext(ctx, "getent", cmp.Or(database, "ahosts"), t.HostName).Output()
	if err != nil {
		return nil // getent is not installed, or does not know the name either
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

// startProxy starts the ProxyCommand with the user's shell, as ssh does, and
// returns its standard input and output as a connection.
func startProxy(t sshconfig.Target) (net.Conn, error) {
	conn, err := pipe.Start(exec.Command(cmp.Or(os.Getenv("SHELL"), "/bin/sh"), "-c", "exec "+t.ProxyCommand), t.Address, true)
	if err != nil {
		return nil, fmt.Errorf("start ProxyCommand: %w", err)
	}
	// If a ProxyCommand exits with status 0, the server has closed the
	// connection, perhaps because it is overloaded. The error then wraps
	// io.EOF, and Dial retries.
	conn.Explain = func(err error) error {
		end := conn.WaitExit()
		if end == nil {
			return fmt.Errorf("ProxyCommand %q: %w", t.ProxyCommand, err)
		}
		text := fmt.Sprintf("ProxyCommand %q ended with %v", t.ProxyCommand, end)
		if said := conn.LastStderrLine(); said != "" {
			text += ": " + said
		}
		if end.Success() {
			return fmt.Errorf("%s: %w", text, io.EOF)
		}
		return errors.New(text)
	}
	return conn, nil
}
