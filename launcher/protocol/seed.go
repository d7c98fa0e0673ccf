package protocol

// Seed asks an agent to serve its own executable over TCP. A host without an
// agent downloads the executable with a shell script. The result of the call
// is the port.
type Seed struct {
	Addr  string `json:"addr"`          // IP address on which the agent listens
	Low   int    `json:"low,omitempty"` // first port of the allowed range, as in Spec.PortLow
	High  int    `json:"high,omitempty"`
	Token string `json:"token"` // secret that a downloading host must send
}
