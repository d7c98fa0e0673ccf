package embedded_test

import (
	"testing"

	"github.com/plx-run/plx/internal/test/transporttest"
	"github.com/plx-run/plx/launcher/embedded"
	"github.com/plx-run/plx/launcher/ssh"
	"github.com/plx-run/plx/launcher/transport"
)

// start starts a cluster, which is closed at the end of the test.
func start(t *testing.T, n int) *embedded.Cluster {
	t.Helper()
	cluster, err := embedded.Start(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return cluster
}

func dial(t *testing.T, cfg ssh.Config) *ssh.Client {
	t.Helper()
	client, err := ssh.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // error ignored: other tests check the error of Close
	return client
}

func TestTransport(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	cluster := start(t, 1)
	transporttest.Run(t, func(t *testing.T) transport.Transport { return dial(t, cluster.Configs()[0]) })
}
