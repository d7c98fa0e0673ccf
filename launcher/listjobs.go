package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// JobsConfig says what Jobs lists and how.
type JobsConfig struct {
	Query
	JSON bool
}

// jobRow is one job of the list.
type jobRow struct {
	Job     string    `json:"job"`
	Name    string    `json:"name,omitempty"`
	Program string    `json:"program"`
	Created time.Time `json:"created"`
	Hosts   int       `json:"hosts"`
	Tasks   int       `json:"tasks"`
	State   string    `json:"state"` // running, done, failed, gone (its hosts forgot it), unknown
	Code    *int      `json:"code,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	// Generation is how often the job was restarted.
	Generation int `json:"generation,omitempty"`
}

// Jobs lists the jobs that this machine launched, or those found on the given
// hosts, the oldest first.
func Jobs(ctx context.Context, cfg JobsConfig) error {
	v := newVoice(cfg.Terminal)
	rs, err := loadRecords()
	if cfg.OnHosts {
		rs, err = searchHosts(ctx, cfg.Reach, v)
	}
	if err != nil {
		return err
	}
	rows := make([]jobRow, len(rs))
	var wg sync.WaitGroup
	limit := make(chan struct{}, fanOut)
	for i, r := range rs {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			rows[i] = r.row(ctx, v)
		})
	}
	wg.Wait()
	if cfg.JSON {
		return json.NewEncoder(cfg.Terminal.Stdout).Encode(rows)
	}
	return printJobs(cfg.Terminal, rows)
}

func (r record) row(ctx context.Context, v *voice) jobRow {
	row := jobRow{Job: r.Job, Name: r.Name, Program: r.Program, Created: r.Created, State: "running"}
	err := error(nil)
	if r.Verdict == nil {
		var state protocol.State
		if state, err = r.ask(ctx, v); err == nil {
			row.Generation = state.Generation
			if err := r.learn(state, v); err != nil {
				v.say("%v", err)
			}
		}
	}
	for _, h := range r.Hosts {
		if h.Left {
			continue
		}
		row.Hosts++
		row.Tasks += len(h.Tasks)
	}
	switch {
	case errors.Is(err, errForgotten):
		row.State, row.Reason = "gone", err.Error()
		return row
	case err != nil:
		row.State, row.Reason = "unknown", err.Error()
		return row
	case r.Verdict == nil:
		return row
	}
	row.State, row.Code, row.Reason, row.Generation = "done", &r.Verdict.Code, r.Verdict.Reason, r.Verdict.Generation
	if r.Verdict.Code != 0 {
		row.State = "failed"
	}
	return row
}

func printJobs(term Terminal, rows []jobRow) error {
	t := newTable("JOB", "STARTED", "HOSTS", "TASKS", "STATE", "CODE", "REASON")
	for _, r := range rows {
		code := ""
		if r.Code != nil {
			code = strconv.Itoa(*r.Code)
		} else if r.Generation > 0 {
			r.State = fmt.Sprintf("%s, generation %d", r.State, r.Generation)
		}
		t.Row(r.Job, r.Created.Local().Format("2006-01-02 15:04:05"), strconv.Itoa(r.Hosts), strconv.Itoa(r.Tasks), r.State, code, r.Reason)
	}
	return writeTable(term.Stdout, t)
}
