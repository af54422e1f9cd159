package secret

import (
	"context"
	"os"
)

// EnvPrefix starts the name of every variable that may be a secret. No other
// variable of the worker is ever handed out.
const EnvPrefix = "BELAY_SECRET_"

// Env reads secrets from the worker's own environment: TOKEN from the variable
// BELAY_SECRET_TOKEN.
func Env() Provider { return env{} }

type env struct{}

func (e env) Get(_ context.Context, name string) (Value, error) {
	if err := checkName(name); err != nil {
		return Value{}, err
	}
	text, ok := os.LookupEnv(EnvPrefix + name)
	if !ok {
		return Value{}, notFound(name, e.Where(name))
	}
	return NewValue(name, text), nil
}

func (env) Where(name string) string {
	return "the variable " + EnvPrefix + name + " of the worker"
}
