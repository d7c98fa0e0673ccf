package ssh

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/ssh/sshconfig"
)

// The error of a write to an exited ProxyCommand has its exit status, because
// the handshake may write before it reads.
func TestWriteReportsProxyCommandExit(t *testing.T) {
	t.Setenv("SHELL", "/bin/sh")
	conn, err := startProxy(sshconfig.Target{ProxyCommand: "sh -c 'echo no way >&2; exit 3'", Address: "127.0.0.1:22"})
	if err != nil {
		t.Fatal(err)
	}
	defer func(c net.Conn) { _ = c.Close() }(conn) // it always succeeds
	for deadline := time.Now().Add(patience.Limit); err == nil && time.Now().Before(deadline); {
		_, err = conn.Write([]byte("SSH-2.0-plx\r\n"))
	}
	if err == nil || !strings.Contains(err.Error(), "ended with exit status 3: no way") {
		t.Errorf("write: %v", err)
	}
}
