package protocol

// Seed asks an agent to give its own program to other hosts, whose shells take it: they have no
// agent yet. The answer is the port.
type Seed struct {
	Addr  string `json:"addr"`          // where
	Low   int    `json:"low,omitempty"` // as in Spec.PortLow
	High  int    `json:"high,omitempty"`
	Token string `json:"token"` // what they must tell
}
