package top

import (
	"regexp"
	"strings"
	"time"

	"github.com/charmbracelet/bubbles/textinput"
	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"
)

// pane is a part of the view that the user can enlarge to the whole view.
type pane int

const (
	all pane = iota
	hostPane
	taskPane
	logPane
)

// model is the state of the user interface, as the Bubble Tea library defines
// a model.
type model struct {
	view          *View
	now           snapshot
	width, height int

	pane   pane
	scroll int      // number of lines by which an enlarged pane is scrolled down; in the log, by which it is scrolled up from its end
	paused []string // copy of the log from the time when the user paused the log; nil if it is not paused

	input  textinput.Model
	asking byte           // '/' while the user types a search pattern, 'f' while the user types a filter, otherwise 0
	search *regexp.Regexp // pattern that the key n searches; nil if there is none
	filter *regexp.Regexp // show only log lines that match this pattern; nil shows all lines
	wrong  string         // error in the pattern that the user typed; empty if there is none
}

// refresh is the interval at which the view is redrawn.
const refresh = 500 * time.Millisecond

type tick struct{}

func newModel(v *View) *model {
	input := textinput.New()
	input.CharLimit = 200
	return &model{view: v, now: v.snapshot(), input: input}
}

func ticking() tea.Cmd { return tea.Tick(refresh, func(time.Time) tea.Msg { return tick{} }) }

// Init implements tea.Model: it starts the ticks that redraw the view.
func (m *model) Init() tea.Cmd { return ticking() }

// Update implements tea.Model: it processes a key, a tick or a new size of the
// terminal.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tick:
		m.now = m.view.snapshot()
		return m, ticking()
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyMsg:
		if m.asking != 0 {
			return m, m.typed(msg)
		}
		return m, m.key(msg.String())
	}
	return m, nil
}

// key executes the command of a key.
func (m *model) key(name string) tea.Cmd {
	switch name {
	case "q", "ctrl+c", "esc":
		if name == "esc" && (m.pane != all || m.filter != nil || m.search != nil) {
			m.pane, m.scroll, m.filter, m.search = all, 0, nil, nil
			return nil
		}
		return tea.Quit
	case "0", "1", "2", "3":
		next := pane(name[0] - '0')
		if next == m.pane {
			next = all
		}
		m.pane, m.scroll = next, 0
	case " ", "p":
		if m.paused == nil {
			m.paused = append([]string{}, m.now.lines...)
		} else {
			m.paused, m.scroll = nil, 0
		}
	case "/", "f":
		m.asking, m.wrong = name[0], ""
		m.input.Reset()
		return m.input.Focus()
	case "n":
		m.find()
	case "up", "k":
		m.move(1)
	case "down", "j":
		m.move(-1)
	case "pgup":
		m.move(max(1, m.height/2))
	case "pgdown":
		m.move(-max(1, m.height/2))
	case "end", "G":
		m.scroll, m.paused = 0, nil
	}
	return nil
}

// move scrolls by the given number of lines, down if it is negative. It
// scrolls the enlarged pane of hosts or tasks, and otherwise the log, which it
// pauses.
func (m *model) move(up int) {
	if m.pane == hostPane || m.pane == taskPane {
		m.scroll = max(0, m.scroll-up)
		return
	}
	if m.paused == nil {
		m.paused = append([]string{}, m.now.lines...)
	}
	m.scroll = min(max(0, m.scroll+up), max(0, len(m.log())-1))
}

// typed processes a key while the user types a search pattern or a filter.
func (m *model) typed(msg tea.KeyMsg) tea.Cmd {
	switch msg.String() {
	case "esc", "ctrl+c":
		m.asking = 0
		return nil
	case "enter":
		kind := m.asking
		m.asking = 0
		var pattern *regexp.Regexp
		if text := m.input.Value(); text != "" {
			var err error
			if pattern, err = regexp.Compile("(?i)" + text); err != nil {
				m.wrong = strings.TrimPrefix(err.Error(), "error parsing regexp: ")
				return nil
			}
		}
		if kind == 'f' {
			m.filter, m.scroll = pattern, 0
		} else {
			m.search = pattern
			m.find()
		}
		return nil
	}
	var cmd tea.Cmd
	m.input, cmd = m.input.Update(msg)
	return cmd
}

// find scrolls up to the next log line that matches the search. If no line
// above matches, find continues from the end of the log.
func (m *model) find() {
	if m.search == nil {
		return
	}
	if m.paused == nil {
		m.paused = append([]string{}, m.now.lines...)
	}
	lines := m.log()
	for i := range lines {
		back := (m.scroll + 1 + i) % len(lines)
		if m.search.MatchString(ansi.Strip(lines[len(lines)-1-back])) {
			m.scroll = back
			return
		}
	}
	m.wrong = "no line matches"
}

// log returns the log lines that pass the filter.
func (m *model) log() []string {
	lines := m.now.lines
	if m.paused != nil {
		lines = m.paused
	}
	if m.filter == nil {
		return lines
	}
	var shown []string
	for _, line := range lines {
		if m.filter.MatchString(ansi.Strip(line)) {
			shown = append(shown, line)
		}
	}
	return shown
}
