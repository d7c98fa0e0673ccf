package hosts

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// mostOutput bounds what is kept of each output of a command, in bytes.
const mostOutput = 64 << 10

// Ask runs a command of plx's own on a host, without input, and returns the ends of its
// outputs. It takes no longer than the request's MaxTime, which must be set. live, unless
// it is nil, is given both outputs as they arrive.
func Ask(ctx context.Context, a *AgentHost, request protocol.ExecRequest, live io.Writer) (stdout, stderr string, err error) {
	request.Lease = request.MaxTime + time.Minute
	line, err := json.Marshal(request)
	if err != nil {
		return "", "", err
	}
	// The end of its input would end the command.
	silence, end := io.Pipe()
	defer end.Close()
	marked := &AgentHost{Host: a.Host, Binary: a.Binary, Job: "ask-" + strings.ToLower(rand.Text()), Folder: a.JobFolder()}
	out, errs := &tail{limit: mostOutput}, &tail{limit: mostOutput}
	err = Exec(ctx, marked, io.MultiReader(bytes.NewReader(append(line, '\n')), silence), also(out, live), also(errs, live))
	return out.String(), errs.String(), err
}

// also returns what writes to live too, unless that is nil.
func also(w, live io.Writer) io.Writer {
	if live == nil {
		return w
	}
	return io.MultiWriter(w, live)
}
