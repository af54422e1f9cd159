// Package supervisor is the process that stands between the worker and a step.
//
// The worker starts it from its own executable under the name [Name], hands it
// a [Job] over a socket, and reads back what became of it. The supervisor starts
// the step, waits for all that descends from it, and ends all of it when it is
// told to, when nobody keeps it alive, or when the socket closes because the
// worker died. It stays outside of the step's cgroup, and every orphan of the
// step becomes its child, so that nothing of the step escapes it. When nothing
// of the step is left it is free for the next: it never has two at a time, so
// that each process below it is known to be one step's.
//
// The package has an init function, and imports the standard library only,
// little of it: Go initialises packages that are ready in the order of their
// import paths, so this one starts before the packages of third parties, which
// saves each step more than a millisecond. For the same reason it uses neither
// fmt nor os/signal.
package supervisor

// Name is the first argument by which an executable knows that it is to be a
// supervisor.
const Name = "belay-supervisor"

// Comm is the name that a supervisor shows in ps.
const Comm = "belay-supervis"

// Probe is the second argument of a supervisor that ends at once: the worker
// tries with it whether it can run itself.
const Probe = "probe"

// The descriptors that a supervisor has; those of a step's output come with the
// job.
const (
	ControlFD = 3
	ReportFD  = 4
)

// What the worker writes to the control socket, a byte each.
const (
	// Assign comes with the step's stdout and stderr as descriptors, and is
	// followed by the job.
	Assign = 'J'

	// Ask wants a report [Waiting] of one that has no job.
	Ask = '?'
	// Terminate asks for SIGTERM, the grace period, SIGKILL.
	Terminate = 'T'
	// Kill asks for SIGKILL now.
	Kill = 'K'
	// KeepAlive sets the dead-man timer back.
	KeepAlive = 'A'
)
