// The types of what the page uses of preact.js.
export interface Signal<T> { value: T; peek(): T; subscribe(then: (value: T) => void): () => void }
export interface ReadonlySignal<T> { readonly value: T; peek(): T; subscribe(then: (value: T) => void): () => void }
export function signal<T>(value: T): Signal<T>;
export function computed<T>(of: () => T): ReadonlySignal<T>;
export function effect(run: () => void | (() => void)): () => void;
export function batch<T>(run: () => T): T;
export function untracked<T>(run: () => T): T;
export function useSignal<T>(value: T): Signal<T>;
export function useComputed<T>(of: () => T): ReadonlySignal<T>;
export function useSignalEffect(run: () => void | (() => void)): void;
export type Node = any;
export function h(type: any, props: any, ...children: any[]): Node;
export function render(node: Node, into: Element): void;
export const Fragment: any;
export function useState<T>(value: T | (() => T)): [T, (value: T | ((before: T) => T)) => void];
export function useEffect(run: () => void | (() => void), inputs?: any[]): void;
export function useLayoutEffect(run: () => void | (() => void), inputs?: any[]): void;
export function useRef<T>(value: T): { current: T };
export function useMemo<T>(of: () => T, inputs: any[]): T;
export function useCallback<T>(of: T, inputs: any[]): T;
export function useErrorBoundary(then?: (error: any) => void): [any, () => void];
export function useId(): string;
export const htm: { bind(of: any): (strings: TemplateStringsArray, ...values: any[]) => Node };
