package top

import (
	"regexp"
	"strings"
	"time"

	"github.com/charmbracelet/bubbles/textinput"
	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"
)

// pane is a part of the view that can have all of it.
type pane int

const (
	all pane = iota
	hostPane
	taskPane
	logPane
)

// model is the state of the view for one user.
type model struct {
	view          *View
	now           snapshot
	width, height int

	pane   pane
	scroll int      // lines from the top of a pane that has all of the view; in the log: from its end
	paused []string // the log as it was when the user paused it; nil: it goes on

	input  textinput.Model
	asking byte           // '/' for a search, 'f' for a filter; 0: the user types nothing
	search *regexp.Regexp // nil: none
	filter *regexp.Regexp // nil: all lines are shown
	wrong  string         // what is wrong with the pattern; "": nothing
}

// refresh is how often the view is drawn.
const refresh = 500 * time.Millisecond

type tick struct{}

func newModel(v *View) *model {
	input := textinput.New()
	input.CharLimit = 200
	return &model{view: v, now: v.snapshot(), input: input}
}

func ticking() tea.Cmd { return tea.Tick(refresh, func(time.Time) tea.Msg { return tick{} }) }

// Init begins to draw.
func (m *model) Init() tea.Cmd { return ticking() }

// Update takes a key or a tick.
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

// key obeys a key.
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

// move scrolls up, or down by a negative number: the log, which pauses, or the pane that has all
// of the view.
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

// typed takes a key of a pattern.
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

// find scrolls to the next line above that the search matches; from the end again if there is none.
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

// log returns the lines of the log that the filter shows.
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
