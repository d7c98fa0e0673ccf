package hosts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/plx-run/plx/envsync/venv"
)

// Install asks a host to install a virtual environment. It reports false if the host
// needs its contents for that.
func Install(ctx context.Context, a *AgentHost, r venv.Request) (ready bool, err error) {
	request, err := json.Marshal(r)
	if err != nil {
		return false, err
	}
	var stdout bytes.Buffer
	if err := (receiver{a}).Call(ctx, "python", bytes.NewReader(request), &stdout); err != nil {
		return false, err
	}
	var answer venv.Answer
	if err := json.Unmarshal(stdout.Bytes(), &answer); err != nil {
		return false, fmt.Errorf("its answer about the virtual environment: %w", err)
	}
	return answer.Ready, nil
}
